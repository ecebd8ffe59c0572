//! What a megakernel program is: graph, schedule, program, text format, verifier
