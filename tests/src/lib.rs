//! Tools for testing programs: an independent [`oracle`], random programs ([`generate`]), their
//! mutations ([`mutate`]), and the comparison of verifier and oracle on them ([`soundness`],
//! [`shrink`]); the same for programs with tables ([`routed`]) and with rows ([`rows`]);
//! certificates that need no verifier ([`naive`]); damage for readers ([`damage`]).

pub mod damage;
pub mod generate;
pub mod mutate;
pub mod naive;
pub mod oracle;
pub mod routed;
pub mod rows;
pub mod shrink;
pub mod soundness;
