//! An embedded Rust DSL for GPU megakernels
