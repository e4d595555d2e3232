"""What runs on a GPU node: the agent with its sources, and the simulated cluster that stands in for one."""
