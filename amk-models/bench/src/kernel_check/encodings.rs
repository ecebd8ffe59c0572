//! The encodings in which decoders are drawn.

use amk::encoding::Encoding;
use amk_kernels::encoding::GroupFormat;
use amk_kernels::fused::TileKind;
use std::collections::BTreeMap;

/// The encodings that the device decodes and that can be drawn, as decoders have them: each by
/// itself, those by groups with the same sort of codes together, then all.
pub fn encodings_on_device() -> Vec<Vec<&'static Encoding>> {
    let mut known: Vec<&Encoding> = TileKind::registered().map(|kind| kind.layout.encoding).collect();
    known.retain(|encoding| encoding.encode.is_some());
    known.sort_by_key(|encoding| encoding.name);
    known.dedup_by_key(|encoding| encoding.name); // of several kinds of tiles
    let mut sorts = BTreeMap::<(&str, bool), Vec<_>>::new();
    for &encoding in &known {
        let codes = encoding.name.split(':').next().unwrap_or_default();
        let zero = GroupFormat::of(encoding).is_some_and(|format| format.zero);
        sorts.entry((codes, zero)).or_default().push(encoding);
    }
    sorts.into_values().chain([known]).collect()
}
