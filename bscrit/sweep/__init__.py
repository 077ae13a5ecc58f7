"""`bscrit sweep`: a pure plan of what to train next, and the driver that has it trained."""
