//! What tests programs: an independent [`oracle`], random programs ([`generate`]) and their mutations ([`mutate`]).

pub mod oracle;
