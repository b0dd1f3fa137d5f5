"""What the service can carry: requests, events and messages per second of processor time, tails, memory, and its peers.

Everything runs on the loopback interface of one machine. The program that sends is one process on one core, the server
another on another core, so neither steals the other's time; what costs the server is read from the kernel's account of
its process. Contestants are measured in turn, A B A B, so that what else the machine does falls on all of them alike.
"""
