"""What Tunery's services say to each other: the only vocabulary they share. Pure, no I/O."""
