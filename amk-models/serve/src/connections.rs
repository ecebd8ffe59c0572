//! Connections: each is served until it ends, and a client must send request heads in time.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::serve::Listener;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long a connection without an open answer may take, after the end, to send the rest of a head
/// or to take the rest of an answer.
const AFTER_END: Duration = Duration::from_secs(2);

/// Serves `routes` until `end` completes, and then until open answers have ended.
///
/// A connection is closed if the head of a request, whether the first or a later one, takes longer
/// than `head_time` to arrive.
pub(crate) async fn serve(
    mut listener: TcpListener,
    routes: Router,
    head_time: Duration,
    end: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_time);
    let open = GracefulShutdown::new();
    let (ends, ended) = watch::channel(false);
    let mut end = pin!(end);
    loop {
        let (stream, _) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = &mut end => break,
        };
        let requests = Requests::default();
        let service = requests.counted(routes.clone());
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
        let ended = ended.clone();
        // A client that disconnects or is too slow affects no one else.
        tokio::spawn(async move {
            tokio::select! {
                left = connection => drop(left),
                () = requests.none_after(ended) => (),
            }
        });
    }
    drop(listener);
    // Receivers that are dropped belong to connections that have ended.
    let _ = ends.send(true);
    open.shutdown().await;
}

/// The open requests of a connection: one reference each, and two for themselves.
#[derive(Default)]
struct Requests(Arc<()>);

impl Requests {
    /// A service whose requests are open until their answers have been read.
    fn counted(
        &self,
        routes: Router,
    ) -> impl Service<
        hyper::Request<hyper::body::Incoming>,
        Response = hyper::Response<Answer>,
        Error = Infallible,
        Future: Send,
    > + use<> {
        let (routes, requests) = (TowerToHyperService::new(routes), Arc::clone(&self.0));
        service_fn(move |request| {
            let (answer, request) = (routes.call(request), Arc::clone(&requests));
            async move { Ok(answer.await?.map(|body| Answer { body, _request: request })) }
        })
    }

    /// Completes some time after `ended` is true, when no request is open.
    async fn none_after(&self, mut ended: watch::Receiver<bool>) {
        // If the sender is dropped, the server is gone.
        let _ = ended.wait_for(|&ended| ended).await;
        loop {
            tokio::time::sleep(AFTER_END).await;
            if Arc::strong_count(&self.0) <= 2 {
                return;
            }
        }
    }
}

/// The body of an answer, whose request is open as long as the body exists.
struct Answer {
    body: Body,
    _request: Arc<()>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
