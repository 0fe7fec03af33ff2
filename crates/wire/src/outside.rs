//! How vendors are reached: where names lead and whose signature counts.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{
    Certificate,
    dns::{Addrs, Name, Resolve, Resolving},
};

use crate::{Names, Resolver};

/// The way to vendors' origins, the same for every adapter.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Where names lead.
    pub resolver: Arc<dyn Resolver>,
    /// Names that lead to loopback instead. Nothing else is different for them: TLS and the certificate's name are checked.
    pub names: Arc<Names>,
    /// Roots, as DER, that count instead of the built-in ones; of the binary under test alone.
    pub only_roots: Option<Vec<Vec<u8>>>,
    /// How long one request may take, its whole reply included.
    pub call: Duration,
}

impl Outside {
    /// The roots that count. Those of Mozilla come with the program: a machine needs no store of its own, and no variable
    /// (`SSL_CERT_FILE` is one) makes us believe another root.
    pub(crate) fn roots(&self) -> Result<Vec<Certificate>, reqwest::Error> {
        match &self.only_roots {
            Some(roots) => roots.iter().map(|der| Certificate::from_der(der)).collect(),
            None => webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|der| Certificate::from_der(der)).collect(),
        }
    }

    /// The look-up of an origin on `port`.
    pub(crate) fn names_for(&self, port: u16) -> Lookups {
        Lookups { resolver: self.resolver.clone(), names: self.names.clone(), port }
    }
}

/// Looks names up for one origin.
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolver>,
    names: Arc<Names>,
    port: u16,
}

impl Resolve for Lookups {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, mapped) = (self.resolver.clone(), self.names.target(name.as_str(), self.port));
        let port = self.port;
        Box::pin(async move {
            let addresses = match mapped {
                Some(target) => vec![target],
                None => resolver.resolve(name.as_str()).await?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
            };
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
