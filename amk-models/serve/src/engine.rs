//! The engine: a thread that owns the VM and generates the texts of all clients.

use crate::metrics::Counters;
use amk::rows::{RowVm, RowsError};
use amk_models::chain::Chain;
use amk_models::tokenizer::Tokenizer;
use amk_run::batch::{Batch, Event, TextId};
use amk_run::generate::GenerateError;
use amk_run::sampler::SamplerError;
use amk_run::text::{Generated, PlacedLogprobs, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A piece of a text, for a client.
#[derive(Debug)]
pub(crate) enum Piece {
    /// There is more of it.
    Text {
        text: String,
        /// Those of the tokens that begin in it, if requested.
        logprobs: Vec<PlacedLogprobs>,
    },
    /// It has ended.
    Ended(Generated),
}

/// The reasons why the engine does not generate a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The maximum number of texts is in progress or waiting.
    #[error("{0} texts are being written or waiting, and no more may; try again later")]
    Busy(usize),
    /// The prompt is too long.
    #[error("{0}")]
    TooLong(String),
    /// The prompt has no tokens.
    #[error("{0}")]
    Empty(String),
    /// The text cannot be generated: a parameter is out of range, its grammar leads nowhere, or
    /// there are more texts than can ever be open.
    #[error("{0}")]
    Refused(String),
    /// The model's logits are not numbers.
    #[error("the text failed: {0}")]
    Failed(String),
    /// The VM failed, or the server is ending.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
}

/// A piece of a numbered text of a submission.
pub(crate) type Numbered = (usize, Result<Piece, EngineError>);

/// A text to be written.
struct Job {
    /// The number of its submission.
    submission: u64,
    prompt: Vec<u32>,
    request: Request,
    client: Client,
}

/// The client of a text.
struct Client {
    /// The text's number in its submission.
    number: usize,
    reply: UnboundedSender<Numbered>,
    /// Dropped with the client.
    _place: Place,
}

impl Client {
    fn piece(&self, piece: Piece) -> Outgoing {
        Outgoing { to: self.reply.clone(), piece: (self.number, Ok(piece)) }
    }

    /// The last piece. A place for another text is free before the client can ask for one.
    fn last(self, piece: Result<Piece, EngineError>) -> Outgoing {
        let Self { number, reply: to, _place: place } = self;
        drop(place);
        Outgoing { to, piece: (number, piece) }
    }
}

/// A piece on its way to a client. Waking the client's task takes microseconds, so that pieces of a
/// step are sent while a device runs the next.
struct Outgoing {
    to: UnboundedSender<Numbered>,
    piece: Numbered,
}

impl Outgoing {
    fn send(self) {
        // A client that has disconnected is noticed before the next step.
        let _ = self.to.send(self.piece);
    }
}

fn send_all(outgoing: &RefCell<Vec<Outgoing>>) {
    outgoing.take().into_iter().for_each(Outgoing::send);
}

/// The place of one open text.
struct Place(Arc<Counters>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Bounds of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Maximum number of texts in progress or waiting.
    pub texts: usize,
    /// Maximum number of texts in progress ([`Batch::writing_at_most`]).
    pub live: usize,
    /// Maximum number of ended texts that are kept for prompts with the same beginning
    /// ([`Batch::keeping`]).
    pub kept: usize,
    /// Maximum number of rows of steps that both decode texts and run prompts
    /// ([`Batch::bounding_mixed`]).
    pub mixed: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { texts: 72, live: usize::MAX, kept: 32, mixed: 256 }
    }
}

/// A handle of the thread. Clones refer to the same thread, which ends when the last one is
/// dropped.
#[derive(Clone)]
pub struct Engine {
    jobs: Sender<Job>,
    submissions: Arc<AtomicU64>,
    most: usize,
    counters: Arc<Counters>,
}

impl Engine {
    /// Starts the thread.
    pub fn start<V: RowVm + Send + 'static>(vm: V, tokenizer: Arc<Tokenizer>, options: EngineOptions) -> Self {
        let (jobs, receive) = channel();
        let counters = Arc::new(Counters::default());
        let seen = Arc::clone(&counters);
        let pages = vm.limits().groups.iter().map(|group| group.pages).sum();
        counters.pages.store(pages, Relaxed);
        counters.free_pages.store(pages, Relaxed);
        std::thread::spawn(move || {
            let batch = || {
                let batch = Batch::new(vm, &tokenizer).writing_at_most(options.live).keeping(options.kept);
                batch.bounding_mixed(options.mixed)
            };
            let writer = || Writer::new(batch(), &seen).run(&receive);
            // After a panic only the counters are used, which are atomic.
            if catch_unwind(AssertUnwindSafe(writer)).is_err() {
                tracing::error!("the engine panicked");
                let _ = seen.failed.set("it panicked".to_owned());
            }
        });
        Self { jobs, submissions: Arc::default(), most: options.texts, counters }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Submits `count` texts, each after its prompt. Dropping the receiver cancels them.
    ///
    /// # Errors
    /// [`EngineError::Busy`] and [`EngineError::Stopped`]; more texts than could ever be open, of
    /// which none is made. Errors of a single text are sent with it.
    pub(crate) fn submit(
        &self,
        count: usize,
        texts: impl Iterator<Item = (Vec<u32>, Request)>,
    ) -> Result<UnboundedReceiver<Numbered>, EngineError> {
        if count > self.most {
            let most = self.most;
            return Err(EngineError::Refused(format!("the request is for {count} texts, but the server takes {most}")));
        }
        let take = |open: usize| (open + count <= self.most).then_some(open + count);
        self.counters.open.fetch_update(Relaxed, Relaxed, take).map_err(|_| {
            self.counters.refused.fetch_add(1, Relaxed);
            EngineError::Busy(self.most)
        })?;
        let places: Vec<Place> = (0..count).map(|_| Place(Arc::clone(&self.counters))).collect();
        let (reply, receive) = unbounded_channel();
        let submission = self.submissions.fetch_add(1, Relaxed);
        for (number, ((prompt, request), place)) in texts.zip(places).enumerate() {
            let client = Client { number, reply: reply.clone(), _place: place };
            if self.jobs.send(Job { submission, prompt, request, client }).is_err() {
                let why = self.counters.failed.get().cloned().unwrap_or_default();
                return Err(EngineError::Stopped(why));
            }
        }
        Ok(receive)
    }
}

/// The reason why a text that has begun ends without a result.
fn failed(error: &SamplerError) -> EngineError {
    match error {
        SamplerError::NoFiniteLogit { .. } | SamplerError::InfiniteLogit { .. } => {
            EngineError::Failed(error.to_string())
        }
        SamplerError::Parameter { .. } | SamplerError::Penalty { .. } | SamplerError::Grammar(_) => {
            EngineError::Refused(error.to_string())
        }
    }
}

/// The reason why a text is not started.
fn refused(error: &GenerateError) -> EngineError {
    match error {
        // Clients know it by these words of OpenAI's.
        GenerateError::PromptTooLong { tokens, positions } => EngineError::TooLong(format!(
            "this model's maximum context length is {positions} tokens, but the prompt has {tokens}; shorten it or \
            raise --context"
        )),
        GenerateError::Rows(RowsError::Pages { .. }) => EngineError::TooLong(error.to_string()),
        GenerateError::EmptyPrompt => EngineError::Empty(error.to_string()),
        _ => EngineError::Refused(error.to_string()),
    }
}

/// The thread's texts.
struct Writer<'t, V> {
    batch: Batch<'t, V>,
    clients: BTreeMap<TextId, Client>,
    /// Of the last step.
    outgoing: RefCell<Vec<Outgoing>>,
    counters: &'t Counters,
}

impl<'t, V: RowVm> Writer<'t, V> {
    fn new(batch: Batch<'t, V>, counters: &'t Counters) -> Self {
        Self { batch, clients: BTreeMap::new(), outgoing: RefCell::default(), counters }
    }

    /// Generates until all handles of the thread are dropped and all texts have ended, or the VM
    /// fails.
    fn run(mut self, jobs: &Receiver<Job>) {
        while self.take(jobs) {
            if let Err(why) = self.step() {
                tracing::error!(why, "the VM failed");
                // It may fail once.
                let _ = self.counters.failed.set(why.clone());
                self.fail(&EngineError::Stopped(why));
                return;
            }
        }
    }

    /// Takes the available jobs; waits for one if there is nothing to generate. Returns whether
    /// there is.
    fn take(&mut self, jobs: &Receiver<Job>) -> bool {
        if self.clients.is_empty() {
            send_all(&self.outgoing);
        }
        loop {
            let job = match self.clients.is_empty() {
                true => jobs.recv().map_err(|_| TryRecvError::Disconnected),
                false => jobs.try_recv(),
            };
            match job {
                Ok(job) => self.add(job),
                Err(_) => return !self.clients.is_empty(),
            }
        }
    }

    fn add(&mut self, Job { submission, prompt, request, client }: Job) {
        match self.batch.add_of(submission, &prompt, &request) {
            Ok(id) => {
                self.counters.texts.fetch_add(1, Relaxed);
                self.clients.insert(id, client);
            }
            Err(error) => client.last(Err(refused(&error))).send(),
        }
    }

    /// Cancels the texts whose clients have disconnected, and runs a step of the others.
    fn step(&mut self) -> Result<(), String> {
        let gone: Vec<TextId> =
            self.clients.iter().filter(|(_, client)| client.reply.is_closed()).map(|(&id, _)| id).collect();
        for id in gone {
            self.batch.cancel(id);
            self.clients.remove(&id);
            self.counters.cancelled.fetch_add(1, Relaxed);
        }
        let Self { batch, clients, outgoing, counters } = self;
        let start = Instant::now();
        let mut watch = |id, event: Event<'_>| {
            let piece = match (event, clients.entry(id)) {
                (Event::Text(piece), Entry::Occupied(client)) => {
                    let (text, logprobs) = (piece.text.to_owned(), piece.logprobs.to_vec());
                    client.get().piece(Piece::Text { text, logprobs })
                }
                (Event::Ended(generated), Entry::Occupied(client)) => {
                    counters.ended(&generated);
                    client.remove().last(Ok(Piece::Ended(generated)))
                }
                (Event::Failed(error), Entry::Occupied(client)) => client.remove().last(Err(failed(&error))),
                _ => return Ok(()),
            };
            outgoing.borrow_mut().push(piece);
            Ok(())
        };
        let stepped = batch.step_overlapped(&mut watch, &mut || send_all(outgoing));
        stepped.map_err(|error| Chain(&error).to_string())?;
        counters.stepped(start.elapsed(), batch.state(), batch.session().free_pages().iter().sum());
        Ok(())
    }

    fn fail(self, why: &EngineError) {
        send_all(&self.outgoing);
        self.clients.into_values().for_each(|client| client.last(Err(why.clone())).send());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_made_of_more_than_can_be_open() {
        let (jobs, _open) = channel();
        let engine = Engine { jobs, submissions: Arc::default(), most: 8, counters: Arc::default() };
        let refused = engine.submit(usize::MAX, std::iter::from_fn(|| unreachable!("a text is made")));
        let why = format!("the request is for {} texts, but the server takes 8", usize::MAX);
        assert_eq!(refused.err(), Some(EngineError::Refused(why)));
    }
}
