"""The machine itself, and how it joins."""
