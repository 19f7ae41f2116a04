"""Tables, figures and the page, made of result files only: nothing here trains, and nothing opens a model."""
