"""Pictures of what is placed where: nodes, embedding tables."""
