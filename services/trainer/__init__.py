"""Works where the accelerators are: the node agent and the training process it starts."""
