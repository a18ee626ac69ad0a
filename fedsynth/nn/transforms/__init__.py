"""Fixed transforms of images: nothing here is trained, and each image is transformed by itself."""
