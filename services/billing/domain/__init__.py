"""The rules of accounts and money: pure, without clock and I/O."""
