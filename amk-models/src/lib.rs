//! Annotated models, weights, tokenizers, generation and the amk binary
