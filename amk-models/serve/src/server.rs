//! The routes.

use crate::body::Body;
use crate::connections;
use crate::embeddings::{EmbeddingRequest, Embeddings};
use crate::engine::{Engine, EngineError};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::language::{Asked, refused};
use crate::log::logged;
use crate::logprobs::LogprobsForm;
use crate::origin::{self, Origin};
use crate::page;
use crate::prompt::Prompts;
use crate::reply::{Form, Head};
use crate::request::Completion;
use crate::stream::{Streamed, whole};
use crate::tools::Tools;
use amk_models::chat::ChatTemplate;
use amk_models::tokenizer::{SpecialTokens, Tokenizer, TokenizerError};
use amk_run::grammar::{Grammar, GrammarError, Grammars, Language};
use amk_run::text::Request;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request as HttpRequest, State};
use axum::http::{Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, block_in_place};

/// Languages that are compiled at the same time at most.
const COMPILING: usize = 2;

/// The model that a server offers.
pub struct Served {
    /// Its name in `/v1/models`.
    pub name: String,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template, if it has one.
    pub template: Option<ChatTemplate>,
    /// The defaults for texts, such as the sampler and the tokens that end a text. Its `max_tokens`
    /// and `max_time` are limits for every text.
    pub request: Request,
    /// Positions of a text at most.
    pub context: usize,
    /// Makes embeddings, if the server offers them.
    pub embeddings: Option<Embeddings>,
}

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The key that clients send as `Authorization: Bearer KEY`; `None`: no key is required.
    pub key: Option<String>,
    /// Pages of other sites that may send requests from a browser.
    pub origins: Vec<Origin>,
    /// Bytes of a request's body at most.
    pub body: usize,
    /// Time limit for the head of a request to arrive, and for the next head on an open connection.
    pub head_time: Duration,
    /// Time limit for a body to arrive.
    pub body_time: Duration,
    /// Time limit for open answers after the end is requested.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let thirty = Duration::from_secs(30);
        Self { key: None, origins: Vec::new(), body: 4 << 20, head_time: thirty, body_time: thirty, grace: thirty }
    }
}

/// The state that all requests share.
pub(crate) struct Shared {
    engine: Engine,
    served: Served,
    pub(crate) options: ServeOptions,
    grammars: Grammars,
    /// Languages that may be compiled at the same time.
    compiling: Arc<Semaphore>,
    started: u64,
    /// Ids of requests and answers that were given.
    numbers: AtomicU64,
}

/// Serves until `end` completes, and then until open answers have ended or the grace time is over.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    served: Served,
    options: ServeOptions,
    end: impl Future<Output = ()> + Send + 'static,
) {
    let ServeOptions { grace, head_time, .. } = options;
    let grammars = Grammars::new(Tokenizer::clone(&served.tokenizer), served.request.stop_tokens.clone());
    let shared = Arc::new(Shared {
        engine,
        served,
        options,
        grammars,
        compiling: Arc::new(Semaphore::new(COMPILING)),
        started: now(),
        numbers: AtomicU64::new(0),
    });
    let (asked, ending) = tokio::sync::oneshot::channel();
    let graceful = async move {
        end.await;
        // The server is still there: it waits for this.
        let _ = asked.send(());
    };
    let serving = connections::serve(listener, routes(shared), head_time, graceful);
    let out_of_time = async move {
        match ending.await {
            Ok(()) => tokio::time::sleep(grace).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = serving => {}
        () = out_of_time => {}
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    let api = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/embeddings", post(embeddings))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .layer(from_fn_with_state(Arc::clone(&shared), check_key));
    let all = Router::new()
        .merge(api)
        .merge(page::routes())
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(|method: Method, uri: Uri| async move {
            let path = uri.path();
            ApiError::not_found(format!("there is no {method} {path}; the API begins with /v1"))
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            ApiError::method_not_allowed(format!("{} is not asked by {method}", uri.path()))
        })
        .layer(DefaultBodyLimit::max(shared.options.body));
    let all = match shared.options.origins.as_slice() {
        [] => all,
        origins => all.layer(origin::layer(origins)),
    };
    all.layer(from_fn_with_state(Arc::clone(&shared), logged)).with_state(shared)
}

async fn check_key(State(shared): State<Arc<Shared>>, request: HttpRequest, next: Next) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    // The name of a scheme is in any case (RFC 9110, section 11.1).
    let sent = sent.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let sent = sent.map(|(_, key)| key.trim_start());
    match &shared.options.key {
        Some(key) if !sent.is_some_and(|sent| same(sent, key)) => ApiError::unauthorized().into_response(),
        _ => next.run(request).await,
    }
}

/// Compares all bytes, so that the time does not reveal how many are right.
fn same(sent: &str, key: &str) -> bool {
    let differ = sent.bytes().zip(key.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    differ == 0 && sent.len() == key.len()
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match shared.engine.counters().failed.get() {
        Some(why) => ApiError::from(EngineError::Stopped(why.clone())).into_response(),
        None => Json(json!({ "status": "ok" })).into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shared.engine.counters().text()).into_response()
}

async fn models(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [shared.model()] }))
}

async fn model(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid("model", error.body_text()))?;
    shared.check_model(Some(&name))?;
    Ok(Json(shared.model()))
}

/// Lets other requests proceed while a long text is processed, if there are other threads.
fn beside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => block_in_place(work),
    }
}

/// Runs work on a separate thread, with a limit on how much runs at a time.
async fn aside<T: Send + 'static>(
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // It is never closed.
    let place = Arc::clone(places).acquire_owned().await;
    // Work that has begun continues when its client disconnects, and keeps its place.
    tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    })
    .await
}

async fn tokenize(State(shared): State<Arc<Shared>>, body: Body) -> Result<Json<Value>, ApiError> {
    let fields = &mut Fields::read(&body.0)?;
    let text: Option<String> = fields.either("content", "prompt")?;
    let text = text.ok_or_else(|| ApiError::invalid("content", "`content` is missing"))?;
    let special = match fields.take("add_special")? {
        Some(false) => SpecialTokens::AsWritten,
        _ => SpecialTokens::Add,
    };
    let tokens = beside(|| shared.prompts().encode("content", &text, special))?;
    Ok(Json(json!({ "count": tokens.len(), "tokens": tokens })))
}

async fn detokenize(State(shared): State<Arc<Shared>>, body: Body) -> Result<Json<Value>, ApiError> {
    let tokens: Option<Vec<u32>> = Fields::read(&body.0)?.take("tokens")?;
    let tokens = tokens.ok_or_else(|| ApiError::invalid("tokens", "`tokens` is missing"))?;
    let text = shared.served.tokenizer.decode_with_special(&shared.prompts().known("tokens", tokens)?);
    Ok(Json(json!({ "content": text.map_err(|error| ApiError::invalid("tokens", error.to_string()))? })))
}

async fn completions(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, ApiError> {
    let mut request = Completion::read(&body.0)?;
    let prompts = beside(|| shared.prompts().of_completion(&mut request))?;
    shared.answer(&request, Form::Completion, prompts, None).await
}

async fn chat(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, ApiError> {
    let mut request = Completion::read(&body.0)?;
    let (prompt, tools) = beside(|| shared.prompts().of_chat(&mut request))?;
    shared.answer(&request, Form::Chat, vec![prompt], tools).await
}

async fn embeddings(State(shared): State<Arc<Shared>>, body: Body) -> Result<Json<Value>, ApiError> {
    let none = || ApiError::not_found("this server makes no embeddings; `amk serve --embeddings` does");
    let embeddings = shared.served.embeddings.as_ref().ok_or_else(none)?;
    let request = EmbeddingRequest::read(&body.0)?;
    shared.check_model(request.model.as_deref())?;
    let texts = beside(|| shared.prompts().tokens("input", request.input.clone()))?;
    EmbeddingRequest::check(&texts)?;
    let tokens = texts.iter().map(Vec::len).sum();
    let vectors = embeddings.embed(texts).await?;
    Ok(Json(request.answer(&shared.served.name, &vectors, tokens)))
}

impl Shared {
    fn prompts(&self) -> Prompts<'_> {
        Prompts { tokenizer: &self.served.tokenizer, template: self.served.template.as_ref() }
    }

    /// A number that no other request or answer has.
    pub(crate) fn number(&self) -> String {
        format!("{:x}-{:x}", self.started, self.numbers.fetch_add(1, Relaxed))
    }

    fn model(&self) -> Value {
        let Served { name, context, .. } = &self.served;
        json!({ "id": name, "object": "model", "created": self.started, "owned_by": "amk", "context_window": context })
    }

    /// A request may leave out the model. Another one than ours is a mistake of the client.
    fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        let name = &self.served.name;
        match asked {
            Some(asked) if asked != name => {
                Err(ApiError::model_not_found(format!("there is no model `{asked}`; this server has `{name}`")))
            }
            _ => Ok(()),
        }
    }

    /// The way to write the log-probabilities of texts after their prompts.
    fn logprobs(&self, form: Form, prompts: &[Vec<u32>], choices: usize) -> Result<LogprobsForm, ApiError> {
        let tokenizer = Arc::clone(&self.served.tokenizer);
        let of_tokenizer = |error: TokenizerError| ApiError::invalid("prompt", error.to_string());
        let characters = |prompt: &Vec<u32>| Ok(tokenizer.decode(prompt).map_err(of_tokenizer)?.chars().count());
        let prompts = prompts.iter().map(characters).collect::<Result<_, ApiError>>()?;
        Ok(LogprobsForm { form, tokenizer, prompts, choices })
    }

    /// Compiles a language on a separate thread, because it may take some time.
    async fn compile(self: &Arc<Self>, language: Language) -> Result<Result<Grammar, GrammarError>, EngineError> {
        let shared = Arc::clone(self);
        let compiled = aside(&self.compiling, move || shared.grammars.compile(&language)).await;
        compiled.map_err(|error| EngineError::Stopped(error.to_string()))
    }

    /// The grammar of an answer that is in the language of a field, or calls tools.
    async fn grammar(
        self: &Arc<Self>,
        (field, language): Asked,
        asked: Option<Asked>,
        tools: Option<&Tools>,
    ) -> Result<Grammar, ApiError> {
        let error = match self.compile(language).await? {
            Ok(grammar) => return Ok(grammar),
            Err(error) => error,
        };
        // With tools, the error is about rules that the client has not written: its own schemas say
        // more.
        for (name, schema) in tools.into_iter().flat_map(Tools::schemas) {
            if let Err(error) = self.compile(schema).await? {
                return Err(refused("tools", Some(name), &error));
            }
        }
        if let Some((field, language)) = asked.filter(|_| tools.is_some())
            && let Err(error) = self.compile(language).await?
        {
            return Err(refused(field, None, &error));
        }
        Err(refused(field, None, &error))
    }

    /// Has the texts of a request written.
    async fn answer(
        self: &Arc<Self>,
        request: &Completion,
        form: Form,
        prompts: Vec<Vec<u32>>,
        tools: Option<Tools>,
    ) -> Result<Response, ApiError> {
        self.check_model(request.model.as_deref())?;
        let choices = request.choices()?;
        let mut own = request.request(&self.served.request, form, self.served.tokenizer.token_count())?;
        let asked = request.language.language()?;
        let language = beside(|| tools.as_ref().map_or(Ok(asked.clone()), |tools| tools.language(asked.clone())))?;
        if let Some(language) = language {
            own.grammar = Some(self.grammar(language, asked, tools.as_ref()).await?);
        }
        let logprobs = own.logprobs.map(|_| self.logprobs(form, &prompts, choices)).transpose()?;
        let count = prompts.len().saturating_mul(choices);
        let texts = prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, choices));
        let texts = texts.zip(0..).map(|(prompt, number)| (prompt, own.numbered(number)));
        let pieces = self.engine.submit(count, texts)?;
        let kind = if form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let id = format!("{kind}-{}", self.number());
        let sends_usage = request.streams_usage();
        let head = Head { form, id, created: now(), model: self.served.name.clone(), logprobs, tools, sends_usage };
        if request.stream == Some(true) {
            return Streamed::new(head, pieces, count, choices).begin().await;
        }
        whole(&head, pieces, count, choices).await
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn work_whose_client_has_left_keeps_its_place() {
        let places = Arc::new(Semaphore::new(1));
        let (begun, begins) = channel();
        let (end, ends) = channel::<()>();
        let (held, work) = (Arc::clone(&places), move || (begun.send(()), ends.recv()));
        let client = tokio::spawn(async move { aside(&held, work).await });
        tokio::task::spawn_blocking(move || begins.recv()).await.expect("a thread").expect("it begins");
        client.abort();
        assert!(client.await.is_err());
        assert_eq!(places.available_permits(), 0);
        end.send(()).expect("it waits");
        assert!(aside(&places, || true).await.expect("it ends"));
    }
}
