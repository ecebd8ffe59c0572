//! Answers: collected, or sent piece by piece.

use crate::engine::{EngineError, Numbered, Piece};
use crate::error::ApiError;
use crate::log::AnswerRecord;
use crate::reply::{Head, Written};
use crate::tools::{Part, Reader};
use amk_run::text::{Ended, PlacedLogprobs};
use axum::Json;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use tokio::sync::mpsc::UnboundedReceiver;

/// A text whose end has not arrived yet.
#[derive(Clone, Default)]
struct Coming {
    text: String,
    logprobs: Vec<PlacedLogprobs>,
    ended: Option<Ended>,
}

/// Collects all texts.
pub(crate) async fn whole(
    head: &Head,
    mut pieces: UnboundedReceiver<Numbered>,
    count: usize,
    choices: usize,
) -> Result<Response, ApiError> {
    let mut texts = vec![Coming::default(); count];
    let mut record = AnswerRecord::new();
    while let Some((number, piece)) = pieces.recv().await {
        match piece.inspect_err(|_| record.failed()).map_err(|error| head.error(error))? {
            Piece::Text { text, logprobs } => {
                record.text();
                texts[number].text.push_str(&text);
                texts[number].logprobs.extend(logprobs);
            }
            Piece::Ended(generated) => {
                texts[number].ended = Some(generated.ended);
                record.usage.add(&generated, number % choices == 0);
            }
        }
    }
    let ended = |Coming { text, logprobs, ended }| Some(Written { text, logprobs, ended: ended? });
    let texts: Option<Vec<Written>> = texts.into_iter().map(ended).collect();
    let Some(texts) = texts else {
        record.failed();
        return Err(incomplete().into());
    };
    record.ended();
    Ok(Json(head.whole(texts, record.usage)).into_response())
}

/// The engine has gone in the middle of an answer.
fn incomplete() -> EngineError {
    EngineError::Stopped("the answer is not complete".to_owned())
}

/// An answer that is sent piece by piece.
pub(crate) struct Streamed {
    head: Head,
    pieces: UnboundedReceiver<Numbered>,
    choices: usize,
    /// Texts that have not ended.
    open: usize,
    record: AnswerRecord,
    /// The calls in each text, and their number, if there may be some.
    readers: Vec<(Reader, usize)>,
    /// Events that go before the next piece.
    ready: VecDeque<SseEvent>,
    done: bool,
}

impl Streamed {
    pub(crate) fn new(head: Head, pieces: UnboundedReceiver<Numbered>, count: usize, choices: usize) -> Self {
        let ready = (0..count).filter_map(|index| head.role(index)).map(|chunk| event(&chunk)).collect();
        let readers = (0..count).filter_map(|_| Some((head.tools.as_ref()?.reader(), 0))).collect();
        Self { head, pieces, choices, open: count, record: AnswerRecord::new(), readers, ready, done: false }
    }

    /// Waits for the first piece, so that a text that is refused has the status of an error.
    pub(crate) async fn begin(mut self) -> Result<Response, ApiError> {
        let next = self.pieces.recv().await;
        self.take(next).map_err(|error| self.head.error(error))?;
        Ok(Sse::new(self.events()).keep_alive(KeepAlive::default()).into_response())
    }

    fn events(self) -> impl Stream<Item = Result<SseEvent, Infallible>> {
        stream::unfold(self, |mut streamed| async {
            loop {
                if let Some(event) = streamed.ready.pop_front() {
                    return Some((Ok(event), streamed));
                }
                if streamed.done {
                    return None;
                }
                let next = streamed.pieces.recv().await;
                if let Err(error) = streamed.take(next) {
                    streamed.ready.push_back(event(&streamed.head.error(error).json()));
                    streamed.done = true;
                }
            }
        })
    }

    /// Takes what the engine sends; a text that was cancelled produces nothing more.
    fn take(&mut self, next: Option<Numbered>) -> Result<(), EngineError> {
        let piece = match next {
            Some((number, piece)) => piece.map(|piece| Some((number, piece))),
            None if self.open == 0 => Ok(None),
            None => Err(incomplete()),
        };
        match piece.inspect_err(|_| self.record.failed())? {
            Some((number, piece)) => self.piece(number, piece),
            None => self.end(),
        }
        Ok(())
    }

    fn piece(&mut self, number: usize, piece: Piece) {
        match piece {
            Piece::Text { text, logprobs } => {
                self.record.text();
                let parts = self.readers.get_mut(number).map(|(reader, _)| reader.push(&text));
                self.parts(number, parts.unwrap_or_else(|| vec![Part::Text(text)]), &logprobs);
            }
            Piece::Ended(generated) => {
                self.open -= 1;
                let parts = self.readers.get_mut(number).map(|(reader, _)| reader.finish());
                self.parts(number, parts.unwrap_or_default(), &[]);
                self.record.usage.add(&generated, number.is_multiple_of(self.choices));
                let called = self.readers.get(number).is_some_and(|(reader, _)| reader.called());
                self.ready.push_back(event(&self.head.end(number, generated.ended, called)));
            }
        }
    }

    fn parts(&mut self, number: usize, parts: Vec<Part>, mut logprobs: &[PlacedLogprobs]) {
        for part in parts {
            let chunk = match (part, self.readers.get_mut(number)) {
                (Part::Call(call), Some((_, calls))) => {
                    *calls += 1;
                    self.head.called(number, *calls - 1, &call)
                }
                (Part::Text(text), _) => self.head.text(number, &text, core::mem::take(&mut logprobs)),
                (Part::Call(_), None) => continue,
            };
            self.ready.push_back(event(&chunk));
        }
        // Their text is held back.
        if !logprobs.is_empty() {
            self.ready.push_back(event(&self.head.text(number, "", logprobs)));
        }
    }

    fn end(&mut self) {
        self.record.ended();
        if self.head.sends_usage {
            self.ready.push_back(event(&self.head.usage(self.record.usage)));
        }
        self.ready.push_back(SseEvent::default().data("[DONE]"));
        self.done = true;
    }
}

fn event(chunk: &Value) -> SseEvent {
    SseEvent::default().data(chunk.to_string())
}
