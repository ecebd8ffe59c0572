// Multiplication by a constant as a scalar function.
AMK_DEVICE float scaled(float x, float factor) { return factor * x; }
