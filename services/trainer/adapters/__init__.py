"""The machine itself, and how it joins.

hardware      what it offers
enrolment     how a node gets its keys for a token, and keeps them
health        what is wrong with its devices and its disk
memory_kills  the kernel's count of processes killed for lack of memory
notices       of clouds that take a machine away
nvml          NVIDIA's devices, by the library of their driver
processes     process groups on Linux
warm          one of them waits for the next lease with its libraries loaded
"""
