//! A root of the fake's own and the certificate it signs.

use std::{io::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::NamedTempFile;

/// The root, in memory and in a file.
#[derive(Debug)]
pub(super) struct Authority {
    der: Vec<u8>,
    file: NamedTempFile,
}

impl Authority {
    /// A fresh root, and a server's configuration with a certificate for `host`.
    pub(super) fn for_host(host: &str) -> anyhow::Result<(Self, ServerConfig)> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(rcgen::DnType::CommonName, "Root of a test");
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &root)?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let der = root.der().to_vec();
        let mut file = tempfile::Builder::new().prefix("formation-root-").suffix(".pem").tempfile()?;
        file.write_all(pem(&der).as_bytes())?;
        Ok((Self { der, file }, config))
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    pub(super) fn file(&self) -> &Path {
        self.file.path()
    }
}

fn pem(der: &[u8]) -> String {
    let mut lines = vec!["-----BEGIN CERTIFICATE-----".to_owned()];
    lines.extend(der.chunks(48).map(|bytes| STANDARD.encode(bytes)));
    lines.extend(["-----END CERTIFICATE-----".to_owned(), String::new()]);
    lines.join("\n")
}
