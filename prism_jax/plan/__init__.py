"""How a model and a global batch are spread over devices, and the rules a plan must keep."""
