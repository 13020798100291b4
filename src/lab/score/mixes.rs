//! `lab::score::mixes`: labelled recordings, as `mixes.json` describes them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A folder of labelled recordings.
#[derive(Clone, Debug, Deserialize)]
pub struct Mixes {
    /// The recordings.
    pub mixes: Vec<Mix>,
    #[serde(skip)]
    dir: PathBuf,
}

/// One recording.
#[derive(Clone, Debug, Deserialize)]
pub struct Mix {
    /// Its name.
    pub id: String,
    /// The microphone's file, relative to the folder.
    pub file: PathBuf,
    /// What kind of recording it is.
    pub condition: String,
    /// How long it is, s.
    pub duration_s: f64,
    /// The person in it, if there is one.
    #[serde(default)]
    pub user: Option<User>,
    /// The file of what the agent said, relative to the folder, if it said something.
    #[serde(default)]
    pub ref_file: Option<PathBuf>,
}

/// The person in a recording.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// First acoustic energy, s.
    pub onset_s: f64,
    /// How exact that is: `sure` or `soft`.
    pub onset_quality: String,
    /// How far the label may be off, s; absent means not at all.
    #[serde(default)]
    pub onset_tolerance_s: Option<f64>,
    /// Stretches of speech, s; absent where they are not labelled.
    #[serde(default)]
    pub speech: Option<Vec<(f64, f64)>>,
}

/// Why a folder cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum MixesError {
    /// There are no labels.
    #[error("{}: {error}; give the folder that make_mixes.py wrote", path.display())]
    Open {
        /// The labels.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The labels cannot be understood.
    #[error("{}: {error}", path.display())]
    Labels {
        /// The labels.
        path: PathBuf,
        /// What is wrong with them.
        error: serde_json::Error,
    },
    /// There is nothing to score.
    #[error("{}: no recording there has '{only}' in its name", path.display())]
    Nothing {
        /// The labels.
        path: PathBuf,
        /// What was asked for.
        only: String,
    },
}

impl Mixes {
    /// Reads the labels of a folder; `only` keeps the recordings that have it in their names.
    ///
    /// # Errors
    /// There is no `mixes.json`, it cannot be understood, or nothing is left.
    pub fn read(dir: &Path, only: &str) -> Result<Mixes, MixesError> {
        let path = dir.join("mixes.json");
        let text = std::fs::read_to_string(&path).map_err(|error| MixesError::Open { path: path.clone(), error })?;
        let mut mixes: Mixes = serde_json::from_str(&text).map_err(|error| MixesError::Labels { path: path.clone(), error })?;
        mixes.mixes.retain(|mix| mix.id.contains(only));
        if mixes.mixes.is_empty() {
            return Err(MixesError::Nothing { path, only: only.to_owned() });
        }
        mixes.dir = dir.to_owned();
        Ok(mixes)
    }

    /// The file of the microphone.
    pub fn microphone(&self, mix: &Mix) -> PathBuf {
        self.dir.join(&mix.file)
    }

    /// The file of what the agent said.
    pub fn reference(&self, mix: &Mix) -> Option<PathBuf> {
        mix.ref_file.as_ref().map(|file| self.dir.join(file))
    }
}
