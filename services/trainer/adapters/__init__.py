"""The machine itself.

hardware      what it offers
memory_kills  the kernel's count of processes killed for lack of memory
notices       of clouds that take a machine away
processes     process groups on Linux
warm          one of them waits for the next lease with its libraries loaded
"""
