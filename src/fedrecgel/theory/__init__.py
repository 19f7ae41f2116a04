"""What is measured around a trained model: flatness, generalisation, the bound."""
