"""What a node does: know its cards, publish them and prepare claims."""
