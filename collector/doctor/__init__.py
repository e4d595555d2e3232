"""``trueload doctor``: what can be read, mapped and traced on this node, and why not."""
