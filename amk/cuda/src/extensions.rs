//! Values keyed by type: state that the bodies of a crate keep in a plan, an image or a check,
//! opaque to the VM.

use core::any::Any;
use core::fmt::Debug;

/// Values keyed by type, at most one of each.
#[derive(Default, Debug)]
pub struct Extensions(Vec<Box<dyn Extension>>);

/// A value that can be stored: any `Clone + Debug` type.
trait Extension: Any + Debug + Send + Sync {
    fn duplicate(&self) -> Box<dyn Extension>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Debug + Send + Sync> Extension for T {
    fn duplicate(&self) -> Box<dyn Extension> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Clone for Extensions {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|kept| (**kept).duplicate()).collect())
    }
}

impl Extensions {
    /// Returns the value of a type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find_map(|kept| (**kept).as_any().downcast_ref())
    }

    /// Returns the value of a type, mutably.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.iter_mut().find_map(|kept| (**kept).as_any_mut().downcast_mut())
    }

    /// Stores a value, replacing the one of its type.
    pub fn set<T: Any + Clone + Debug + Send + Sync>(&mut self, value: T) {
        match self.get_mut() {
            Some(kept) => *kept = value,
            None => self.0.push(Box::new(value)),
        }
    }

    /// Returns the value of a type, inserting its default if absent.
    pub fn entry<T: Any + Clone + Default + Debug + Send + Sync>(&mut self) -> &mut T {
        let at = self.0.iter().position(|kept| (**kept).as_any().is::<T>()).unwrap_or_else(|| {
            self.0.push(Box::<T>::default());
            self.0.len() - 1
        });
        (*self.0[at]).as_any_mut().downcast_mut().expect("the value of this type was just found")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_a_type() {
        let mut kept = Extensions::default();
        assert_eq!(kept.get::<u32>(), None);
        *kept.entry::<u32>() += 3;
        kept.set("text");
        let copy = kept.clone();
        kept.set(7u32);
        assert_eq!((kept.get(), kept.get::<&str>(), copy.get()), (Some(&7u32), Some(&"text"), Some(&3u32)));
    }
}
