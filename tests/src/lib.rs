//! Filetests, soundness, differential, model and GPU tests
