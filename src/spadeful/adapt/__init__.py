"""Deep domain adaptation (section 4.1 of the paper): data, networks, methods, one trainer, model selection."""
