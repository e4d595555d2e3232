"""The shared language (``contract``) and the store. Imports none of the other rooms."""
