"""The whole job: what interrupts it, what that costs, and when it is done."""
