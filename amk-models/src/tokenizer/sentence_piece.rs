//! SentencePiece vocabularies inside GGUF files (`tokenizer.ggml.model` = `llama`): pieces with
//! scores, where the best pair is joined first. Source: Kudo and Richardson, SentencePiece, 2018;
//! `llm_tokenizer_spm` of llama.cpp.

use std::collections::HashSet;

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::Merges;
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::{DecoderWrapper, NormalizerWrapper};

/// The symbol for a space.
const SPACE: &str = "\u{2581}";

/// Longest piece that is joined from others, in bytes: the work grows with its square, and files
/// are untrusted. Those of Gemma and Llama have at most 93.
const LONGEST_PIECE: usize = 1024;

/// Returns the merges that join pieces according to their scores: a pair that makes a better piece
/// comes first, and among the pairs of one piece the one with the longest first part, as in
/// tokenizers converted by transformers. `joins` states which tokens are pieces: others are matched
/// in a text as a whole.
pub(super) fn merges(tokens: &[String], scores: &[f64], joins: impl Fn(usize) -> bool) -> Merges {
    let pieces = || tokens.iter().zip(scores).enumerate().filter(|(id, _)| joins(*id)).map(|(_, piece)| piece);
    let known: HashSet<&str> = pieces().map(|(piece, _)| piece.as_str()).collect();
    let mut merges = Vec::new();
    for (piece, &score) in pieces().filter(|(piece, _)| piece.len() <= LONGEST_PIECE) {
        let cuts = piece.char_indices().skip(1).enumerate().map(|(first, (at, _))| (first, piece.split_at(at)));
        let cuts = cuts.filter(|(_, (left, right))| known.contains(left) && known.contains(right));
        merges.extend(cuts.map(|(first, pair)| (score, first, pair)));
    }
    // Stable: pieces with equal scores and parts of equal length keep their order.
    merges.sort_by(|(score, first, _), (other, of_other, _)| {
        let by_score = other.total_cmp(score);
        by_score.then_with(|| of_other.cmp(first))
    });
    merges.into_iter().map(|(.., (left, right))| (left.to_owned(), right.to_owned())).collect()
}

/// Spaces are written as [`SPACE`], with one more in front of a text if the model asks for it.
pub(super) fn normalizer(space_in_front: bool) -> tokenizers::Result<NormalizerWrapper> {
    let written = Replace::new(" ", SPACE)?.into();
    Ok(match space_in_front {
        true => Normalizers::new(vec![Prepend::new(SPACE.to_owned()).into(), written]).into(),
        false => written,
    })
}

/// The inverse of [`normalizer`]; tokens `<0xHH>` are bytes.
pub(super) fn decoder(space_in_front: bool) -> tokenizers::Result<DecoderWrapper> {
    let mut decoders = vec![Replace::new(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if space_in_front {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Decoders::new(decoders).into())
}
