// Activations as scalar functions, with the fast exponential.
AMK_DEVICE float silu_gate(float gate, float up) {
    return __fdividef(gate, 1.0f + exp2_fast(-LOG2_E * gate)) * up;
}

AMK_DEVICE float gelu_of(float x) {
    // tanh(u) = 1 - 2 / (1 + exp(2 u)), so that x / 2 * (1 + tanh(u)) = x - x / (1 + exp(2 u)).
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x); // sqrt(2 / pi)
    return x - __fdividef(x, 1.0f + exp2_fast(2.0f * LOG2_E * u));
}

AMK_DEVICE float gelu_gate(float gate, float up) { return gelu_of(gate) * up; }

AMK_DEVICE float gelu_erf_of(float x) { return 0.5f * x * (1.0f + erff(0.7071067812f * x)); }

AMK_DEVICE float gated(float gate, float x) { return gate * x; }

AMK_DEVICE float relu_squared_of(float x) { return fmaxf(x, 0.0f) * fmaxf(x, 0.0f); }
