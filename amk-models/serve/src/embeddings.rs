//! `/v1/embeddings`: a thread with a VM of its own, whose program ends with the hidden states.

use crate::engine::EngineError;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::request::PromptField;
use amk::rows::RowVm;
use amk::session::SessionError;
use amk_models::chain::Chain;
use amk_run::embedding::{EmbedError, Embedder};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;

/// Texts of one request at most, as in OpenAI's API.
const MOST_TEXTS: usize = 2048;

type Vectors = Result<Vec<Vec<f32>>, EngineError>;

/// The texts of a request.
struct Job {
    texts: Vec<Vec<u32>>,
    reply: oneshot::Sender<Vectors>,
}

/// The way to the thread, which ends with it.
#[derive(Clone)]
pub struct Embeddings {
    jobs: SyncSender<Job>,
    most: usize,
}

impl Embeddings {
    /// Starts the thread, for which up to `most` requests may queue.
    pub fn start<V: RowVm + Send + 'static>(embedder: Embedder<V>, most: usize) -> Self {
        let (jobs, receive) = sync_channel(most);
        std::thread::spawn(move || run(embedder, &receive));
        Self { jobs, most }
    }

    /// The vectors of texts.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(crate) async fn embed(&self, texts: Vec<Vec<u32>>) -> Vectors {
        let (reply, answer) = oneshot::channel();
        let stopped = || EngineError::Stopped("the VM for embeddings failed".to_owned());
        self.jobs.try_send(Job { texts, reply }).map_err(|error| match error {
            TrySendError::Full(_) => EngineError::Busy(self.most),
            TrySendError::Disconnected(_) => stopped(),
        })?;
        answer.await.map_err(|_| stopped())?
    }
}

fn run<V: RowVm>(mut embedder: Embedder<V>, jobs: &Receiver<Job>) {
    while let Ok(Job { texts, reply }) = jobs.recv() {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut error = None;
        // Texts whose client has disconnected are skipped.
        for text in texts.iter().take_while(|_| !reply.is_closed()) {
            match embedder.embed(text) {
                Ok(vector) => vectors.push(vector),
                Err(why) => {
                    error = Some(why);
                    break;
                }
            }
        }
        let failed = matches!(error, Some(EmbedError::Session(SessionError::Vm(_))));
        let of_error = |error: EmbedError<V::Error>| match error {
            EmbedError::TooLong { .. } => EngineError::TooLong(error.to_string()),
            EmbedError::NotFinite => EngineError::Refused(error.to_string()),
            EmbedError::Session(SessionError::Rows(error)) => EngineError::Refused(error.to_string()),
            EmbedError::Session(SessionError::Vm(_)) => EngineError::Stopped(Chain(&error).to_string()),
        };
        // The client may be gone.
        let _ = reply.send(error.map_or(Ok(vectors), |error| Err(of_error(error))));
        if failed {
            tracing::error!("the VM for embeddings failed");
            return;
        }
    }
}

/// How numbers are written.
#[derive(Clone, Copy)]
enum Encoding {
    /// A list of numbers.
    Float,
    /// The bytes of little-endian f32 in Base64.
    Base64,
}

/// A request for embeddings.
pub(crate) struct EmbeddingRequest {
    pub(crate) model: Option<String>,
    pub(crate) input: PromptField,
    encoding: Encoding,
}

impl EmbeddingRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// The defect of the body, for the client.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let fields = &mut Fields::read(body)?;
        if fields.asks("dimensions") {
            return Err(ApiError::invalid("dimensions", "`dimensions` is not supported: an embedding has the model's"));
        }
        let encoding = match fields.take::<String>("encoding_format")?.as_deref() {
            None | Some("float") => Encoding::Float,
            Some("base64") => Encoding::Base64,
            Some(other) => {
                let message = format!("`encoding_format` is `{other}`, expected `float` or `base64`");
                return Err(ApiError::invalid("encoding_format", message));
            }
        };
        let input = fields.take("input")?.ok_or_else(|| ApiError::invalid("input", "`input` is missing"))?;
        Ok(Self { model: fields.take("model")?, input, encoding })
    }

    /// Refuses texts that cannot be embedded.
    ///
    /// # Errors
    /// None, too many, or one without tokens.
    pub(crate) fn check(texts: &[Vec<u32>]) -> Result<(), ApiError> {
        if texts.is_empty() || texts.len() > MOST_TEXTS || texts.iter().any(Vec::is_empty) {
            let message = format!("`input` takes 1 to {MOST_TEXTS} texts, none of them empty");
            return Err(ApiError::invalid("input", message));
        }
        Ok(())
    }

    /// The answer.
    pub(crate) fn answer(&self, model: &str, vectors: &[Vec<f32>], tokens: usize) -> Value {
        let write = |vector: &[f32]| match self.encoding {
            Encoding::Float => json!(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                BASE64_STANDARD.encode(bytes).into()
            }
        };
        let vectors = vectors.iter().enumerate();
        let data: Vec<Value> = vectors
            .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": write(vector) }))
            .collect();
        json!({
            "object": "list", "data": data, "model": model,
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }
}
