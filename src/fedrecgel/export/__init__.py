"""What leaves a run for devices and browsers: bundles with their own runtime, ONNX scorers, a page."""
