"""How much hardware varies: families of factors, the tree of them, presets."""
