// Gated activations as scalar functions, with the fast exponential.
AMK_DEVICE float silu_gate(float gate, float up) {
    return __fdividef(gate, 1.0f + exp2_fast(-LOG2_E * gate)) * up;
}

AMK_DEVICE float gelu_gate(float gate, float up) {
    // tanh(u) = 1 - 2 / (1 + exp(2 u)), so that gate / 2 * (1 + tanh(u)) = gate - gate / (1 + exp(2
    // u)).
    const float u = 0.7978845608f * (gate + 0.044715f * gate * gate * gate); // sqrt(2 / pi)
    return (gate - __fdividef(gate, 1.0f + exp2_fast(2.0f * LOG2_E * u))) * up;
}
