// A bound as a scalar function.
AMK_DEVICE float capped(float x, float cap) { return cap * tanhf(__fdividef(x, cap)); }
