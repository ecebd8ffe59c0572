//! Tiles in JSON: `16`, `"per_worker"` and `"whole"` as in the macro, and as [`Tile`] is written.

use super::Tile;
use core::fmt::{self, Formatter};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use std::collections::BTreeMap;

impl<'de> Deserialize<'de> for Tile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Tile;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("a number of elements, `\"per_worker\"` or `\"whole\"`")
            }

            fn visit_u64<E: Error>(self, size: u64) -> Result<Tile, E> {
                let size = u32::try_from(size);
                size.map(Tile::Size).map_err(|_| E::custom("a tile has less than 2^32 elements"))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Tile, E> {
                match name {
                    "per_worker" | "perworker" => Ok(Tile::PerWorker),
                    "whole" => Ok(Tile::Whole),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tile, A::Error> {
                let mut size = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name != "size" || size.is_some() {
                        return Err(A::Error::unknown_field(&name, &["size"]));
                    }
                    size = Some(map.next_value()?);
                }
                size.map(Tile::Size).ok_or_else(|| A::Error::missing_field("size"))
            }
        }
        from.deserialize_any(Form)
    }
}

/// Reads the tiles by the instructions' names, each at most once.
pub(super) fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Tile>, D::Error> {
    struct Tiles;
    impl<'de> Visitor<'de> for Tiles {
        type Value = BTreeMap<String, Tile>;

        fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
            f.write_str("tiles by the names of instructions")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut tiles = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if tiles.contains_key(&name) {
                    return Err(A::Error::custom(format_args!("`{name}` has two tiles")));
                }
                tiles.insert(name, map.next_value()?);
            }
            Ok(tiles)
        }
    }
    from.deserialize_map(Tiles)
}
