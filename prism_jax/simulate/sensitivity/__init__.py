"""The step time as a differentiable function of the hardware."""
