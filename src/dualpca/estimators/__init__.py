"""scikit-learn's shell around the core: validation and names, no mathematics."""
