//! How a loader fills a layout.

use super::WeightLayout;
use crate::tensor::{ShapeError, State, Weight};
use amk_ir::DType;
use amk_ir::expr::Expr;
use std::collections::BTreeMap;

/// The source of weights, tables, parameters and flags for a [`Builder`]. Paths start at the
/// struct: `layers[3].attn.q`.
pub trait Source {
    /// Returns a tensor of the checkpoint.
    ///
    /// # Errors
    /// If it does not exist, has a different shape, or cannot be read.
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError>;

    /// Returns a tensor that the loader computes.
    ///
    /// # Errors
    /// If there is no such table.
    fn table(&mut self, path: &str, shape: &[usize]) -> Result<Weight, SourceError>;

    /// Returns a float of the configuration.
    ///
    /// # Errors
    /// If there is no such parameter.
    fn param(&mut self, path: &str) -> Result<f32, SourceError>;

    /// Returns a flag of the configuration.
    ///
    /// # Errors
    /// If there is no such flag.
    fn flag(&mut self, path: &str) -> Result<bool, SourceError>;

    /// The element type in which a state is kept: one of [`CACHES`](amk_ir::schedule::CACHES).
    fn kept_in(&self, _path: &str) -> DType {
        DType::F32
    }
}

/// A weight that a layout asks for.
#[derive(Clone, Copy, Debug)]
pub struct WeightRequest<'a> {
    /// The field's path in the struct.
    pub path: &'a str,
    /// The tensor's name in the checkpoint.
    pub name: &'a str,
    /// The name to use if the checkpoint has no tensor `name`.
    pub fallback: Option<&'a str>,
    /// The shape.
    pub shape: &'a [usize],
}

/// The reason why a source lacks a field.
pub type SourceError = Box<dyn core::error::Error + Send + Sync>;

/// The reasons why a layout cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The source lacks the field's tensor or value.
    #[error("`{path}` cannot be filled")]
    Source {
        /// The field's path.
        path: String,
        /// The source's reason.
        #[source]
        cause: SourceError,
    },
    /// The source returned a tensor of a different shape.
    #[error("`{path}` has shape {found:?}, expected {expected:?}")]
    Misshaped {
        /// The field's path.
        path: String,
        /// The shape of the layout.
        expected: Vec<usize>,
        /// The shape of the source's tensor.
        found: Vec<usize>,
    },
    /// An extent has no value.
    #[error("`{path}`: extent `{extent}` has no value: {cause}")]
    Extent {
        /// The field's path.
        path: String,
        /// The expression.
        extent: String,
        /// The reason.
        cause: String,
    },
    /// The shape does not fit.
    #[error("`{path}` cannot have its shape")]
    Shape {
        /// The field's path.
        path: String,
        /// The reason.
        #[source]
        cause: ShapeError,
    },
}

/// Gives a layout its fields. The methods are called in the order of the fields; shapes are
/// expressions over dims.
pub struct Builder<'s> {
    source: &'s mut dyn Source,
    dims: &'s BTreeMap<String, u32>,
    /// The path of the struct being filled.
    path: String,
    /// The indices of the lists around it, outermost first.
    indices: Vec<usize>,
}

/// Fills a layout from a source, for these dims.
///
/// # Errors
/// Fields that the source lacks, or has in a different shape.
pub fn build<T: WeightLayout>(dims: &BTreeMap<String, u32>, source: &mut dyn Source) -> Result<T, BuildError> {
    T::build(&mut Builder { source, dims, path: String::new(), indices: Vec::new() })
}

/// Makes a layout that has only states and dims, for these dims; all states are 0.
///
/// # Errors
/// If it has weights, tables, parameters or flags, or a shape does not fit in memory.
pub fn zeroed<T: WeightLayout>(dims: &BTreeMap<String, u32>) -> Result<T, BuildError> {
    zeroed_in(dims, &BTreeMap::new())
}

/// Like [`zeroed`], with the states at these paths kept in an element type of
/// [`CACHES`](amk_ir::schedule::CACHES) instead of f32.
///
/// # Errors
/// As for [`zeroed`].
pub fn zeroed_in<T: WeightLayout>(
    dims: &BTreeMap<String, u32>,
    kept: &BTreeMap<String, DType>,
) -> Result<T, BuildError> {
    build(dims, &mut Nothing { kept })
}

/// The source of layouts that need none.
struct Nothing<'k> {
    /// The element types of states, by path.
    kept: &'k BTreeMap<String, DType>,
}

impl Nothing<'_> {
    fn refuse<T>() -> Result<T, SourceError> {
        Err("there is no source to take it from; only states are made without one".into())
    }
}

impl Source for Nothing<'_> {
    fn weight(&mut self, _: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        Self::refuse()
    }

    fn table(&mut self, _: &str, _: &[usize]) -> Result<Weight, SourceError> {
        Self::refuse()
    }

    fn param(&mut self, _: &str) -> Result<f32, SourceError> {
        Self::refuse()
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Self::refuse()
    }

    fn kept_in(&self, path: &str) -> DType {
        self.kept.get(path).copied().unwrap_or(DType::F32)
    }
}

impl Builder<'_> {
    /// Returns a tensor of the checkpoint. Parts of the names in braces (`{l}`) are the indices of
    /// the lists around the field, outermost first.
    ///
    /// # Errors
    /// As for [`Source::weight`], and if the tensor has a different shape.
    pub fn weight(
        &mut self,
        field: &str,
        name: &str,
        fallback: Option<&str>,
        shape: &[&str],
    ) -> Result<Weight, BuildError> {
        let path = self.path_of(field);
        let shape = self.shape(&path, shape)?;
        let name = numbered(name, &self.indices);
        let fallback = fallback.map(|name| numbered(name, &self.indices));
        let request = WeightRequest { path: &path, name: &name, fallback: fallback.as_deref(), shape: &shape };
        let weight = self.source.weight(&request).map_err(|cause| BuildError::Source { path: path.clone(), cause })?;
        checked(path, &shape, weight)
    }

    /// Returns a tensor that the loader computes.
    ///
    /// # Errors
    /// As for [`Source::table`], and if the tensor has a different shape.
    pub fn table(&mut self, field: &str, shape: &[&str]) -> Result<Weight, BuildError> {
        let path = self.path_of(field);
        let shape = self.shape(&path, shape)?;
        let table =
            self.source.table(&path, &shape).map_err(|cause| BuildError::Source { path: path.clone(), cause })?;
        checked(path, &shape, table)
    }

    /// Returns a state, all 0.
    ///
    /// # Errors
    /// If the shape does not fit in memory.
    pub fn state(&mut self, field: &str, shape: &[&str]) -> Result<State, BuildError> {
        let path = self.path_of(field);
        let shape = self.shape(&path, shape)?;
        let kept = self.source.kept_in(&path);
        let state = State::zeros(&shape).map_err(|cause| BuildError::Shape { path, cause })?;
        Ok(if kept == DType::F32 { state } else { state.kept_in(kept) })
    }

    /// A float of the configuration.
    ///
    /// # Errors
    /// As for [`Source::param`].
    pub fn param(&mut self, field: &str) -> Result<f32, BuildError> {
        let path = self.path_of(field);
        self.source.param(&path).map_err(|cause| BuildError::Source { path, cause })
    }

    /// A flag of the configuration.
    ///
    /// # Errors
    /// As for [`Source::flag`].
    pub fn flag(&mut self, field: &str) -> Result<bool, BuildError> {
        let path = self.path_of(field);
        self.source.flag(&path).map_err(|cause| BuildError::Source { path, cause })
    }

    /// Returns the value of an expression over dims.
    ///
    /// # Errors
    /// If it has no value.
    pub fn dim(&mut self, field: &str, value: &str) -> Result<usize, BuildError> {
        self.extent(&self.path_of(field), value)
    }

    /// A list of structs.
    ///
    /// # Errors
    /// The errors of its elements.
    pub fn list<T>(
        &mut self,
        field: &str,
        length: &str,
        build: fn(&mut Builder<'_>) -> Result<T, BuildError>,
    ) -> Result<Vec<T>, BuildError> {
        let path = self.path_of(field);
        let length = self.extent(&path, length)?;
        (0..length)
            .map(|index| {
                let indices = self.indices.iter().copied().chain([index]).collect();
                build(&mut Builder {
                    source: &mut *self.source,
                    dims: self.dims,
                    path: format!("{path}[{index}]"),
                    indices,
                })
            })
            .collect()
    }

    /// A struct.
    ///
    /// # Errors
    /// The errors of its fields.
    pub fn layout<T>(
        &mut self,
        field: &str,
        build: fn(&mut Builder<'_>) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        let path = self.path_of(field);
        build(&mut Builder { source: &mut *self.source, dims: self.dims, path, indices: self.indices.clone() })
    }

    fn path_of(&self, field: &str) -> String {
        super::visitor::join(&self.path, field)
    }

    fn shape(&self, path: &str, extents: &[&str]) -> Result<Vec<usize>, BuildError> {
        extents.iter().map(|extent| self.extent(path, extent)).collect()
    }

    fn extent(&self, path: &str, extent: &str) -> Result<usize, BuildError> {
        let failed = |cause: String| BuildError::Extent { path: path.to_owned(), extent: extent.to_owned(), cause };
        let expr = Expr::parse(extent).map_err(|error| failed(error.to_string()))?;
        let value = expr
            .eval(&|name| self.dims.get(name).map(|&value| i64::from(value)))
            .map_err(|error| failed(error.to_string()))?;
        usize::try_from(value).map_err(|_| failed(format!("it is {value}")))
    }
}

fn checked(path: String, expected: &[usize], weight: Weight) -> Result<Weight, BuildError> {
    if weight.shape() == expected {
        return Ok(weight);
    }
    Err(BuildError::Misshaped { path, expected: expected.to_vec(), found: weight.shape().to_vec() })
}

/// The name with its parts in braces replaced by the indices, the first by the outermost.
fn numbered(name: &str, indices: &[usize]) -> String {
    let (mut out, mut rest, mut indices) = (String::new(), name, indices.iter());
    while let Some((before, after)) = rest.split_once('{') {
        let Some((part, tail)) = after.split_once('}') else { break };
        out.push_str(before);
        match indices.next() {
            Some(index) => out.push_str(&index.to_string()),
            None => out.push_str(&format!("{{{part}}}")),
        }
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_take_the_list_indices() {
        assert_eq!(numbered("model.layers.{l}.experts.{e}.w", &[3, 7]), "model.layers.3.experts.7.w");
        assert_eq!(numbered("plain", &[3]), "plain");
        assert_eq!(numbered("a.{l}", &[]), "a.{l}");
        assert_eq!(numbered("a.{l", &[1]), "a.{l");
    }

    struct Cache {
        rows: Vec<State>,
    }

    impl WeightLayout for Cache {
        const LAYOUT: &'static str = "";

        fn build(from: &mut Builder<'_>) -> Result<Self, BuildError> {
            Ok(Self { rows: from.list("rows", "LAYERS", |from| from.state("k", &["HEADS", "2 * DIM"]))? })
        }

        fn visit<'a>(&'a self, visitor: &mut super::super::Visitor<'_, 'a>) {
            for row in &self.rows {
                visitor.state("k", row);
            }
        }
    }

    #[test]
    fn states_need_no_source_and_errors_name_the_field() {
        let mut dims = BTreeMap::from([("LAYERS".to_owned(), 2), ("HEADS".to_owned(), 3)]);
        let missing = zeroed::<Cache>(&dims).err().unwrap().to_string();
        assert_eq!(missing, "`rows[0].k`: extent `2 * DIM` has no value: `DIM` has no value here");
        dims.insert("DIM".into(), 4);
        let cache = zeroed::<Cache>(&dims).unwrap();
        assert_eq!(cache.rows.len(), 2);
        assert_eq!(cache.rows[1].shape(), [3, 8]);
    }
}
