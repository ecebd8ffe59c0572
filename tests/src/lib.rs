//! What tests programs: an independent [`oracle`], random programs ([`generate`]) and their mutations ([`mutate`]).

pub mod generate;
pub mod oracle;
