//! Declarations shared by Rust and C++: macros that define Rust constants and render the C++.

use core::fmt::Write as _;

/// A C++ constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Lines of its comment.
    pub doc: &'static [&'static str],
    /// The declaration before the value.
    pub form: &'static str,
    /// The value.
    pub value: u32,
}

/// A C++ enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    /// Lines of its comment.
    pub doc: &'static [&'static str],
    /// Its name.
    pub name: &'static str,
    /// The names of its values, counted from 0.
    pub variants: &'static [&'static str],
}

/// A C++ struct.
#[derive(Clone, Copy, Debug)]
pub struct Struct {
    /// Lines of its comment.
    pub doc: &'static [&'static str],
    /// Its name.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
    /// Its size in bytes.
    pub bytes: usize,
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Lines of its comment.
    pub doc: &'static [&'static str],
    /// Its name.
    pub name: &'static str,
    /// Its Rust type.
    pub rust: &'static str,
    /// Its C++ type if Rust holds only an address.
    pub pointer: &'static [&'static str],
}

/// A value as the device has it in memory.
pub trait DeviceField {
    /// Appends its bytes, after those that align it.
    fn put(&self, to: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(impl DeviceField for $number {
        fn put(&self, to: &mut Vec<u8>) {
            to.resize(to.len().next_multiple_of(size_of::<Self>()), 0);
            to.extend_from_slice(&self.to_ne_bytes());
        }
    })*};
}
numbers!(u16, u32, u64, f32);

impl<T: DeviceField, const N: usize> DeviceField for [T; N] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|element| element.put(to));
    }
}

/// Declares structs for Rust and C++; `field: u64 as "u8*"` is a pointer in C++. Defines `STRUCTS`.
#[macro_export]
macro_rules! device_structs {
    ($($(#[doc = $doc:literal])* struct $name:ident {
        $($(#[doc = $note:literal])* $field:ident: $rust:ty $(as $pointer:literal)?,)*
    })*) => {
        $($(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(C)]
        pub struct $name { $($(#[doc = $note])* pub $field: $rust,)* }
        impl $crate::image::declare::DeviceField for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $($crate::image::declare::DeviceField::put(&self.$field, to);)*
            }
        })*
        const STRUCTS: &[$crate::image::declare::Struct] = &[$($crate::image::declare::Struct {
            doc: &[$($doc),*],
            name: stringify!($name),
            fields: &[$($crate::image::declare::Field {
                doc: &[$($note),*],
                name: stringify!($field),
                rust: stringify!($rust),
                pointer: &[$($pointer)?],
            }),*],
            bytes: size_of::<$name>(),
        }),*];
    };
}

/// Declares constants for Rust and C++, as in `NAME = 3 => "constexpr u32 NAME =";`. Defines
/// `CONSTANTS`.
#[macro_export]
macro_rules! device_constants {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal => $form:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: u32 = $value;)*
        const CONSTANTS: &[$crate::image::declare::Constant] =
            &[$($crate::image::declare::Constant { doc: &[$($doc),*], form: $form, value: $value }),*];
    };
}

/// Declares enumerations for Rust and C++, with a Rust constant per value. Defines `ENUMERATIONS`.
#[macro_export]
macro_rules! device_enumerations {
    ($($(#[doc = $doc:literal])* enum $name:ident { $($variant:ident,)* })*) => {
        $($(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names of the device code")]
        pub enum $name { $($variant),* }
        $(
            #[doc = concat!("The number of [`", stringify!($name), "::", stringify!($variant), "`].")]
            pub const $variant: u32 = $name::$variant as u32;
        )*)*
        const ENUMERATIONS: &[$crate::image::declare::Enumeration] = &[$($crate::image::declare::Enumeration {
            doc: &[$($doc),*],
            name: stringify!($name),
            variants: &[$(stringify!($variant)),*],
        }),*];
    };
}

/// Renders constants and enumerations as C++.
pub fn items(constants: &[Constant], enumerations: &[Enumeration]) -> String {
    let mut out = String::new();
    for Constant { doc, form, value } in constants {
        comment(&mut out, "", doc);
        let end = if form.starts_with('#') { "" } else { ";" };
        let _ = writeln!(out, "{form} {value}{end}");
    }
    for Enumeration { doc, name, variants } in enumerations {
        out.push('\n');
        comment(&mut out, "", doc);
        let _ = writeln!(out, "enum {name} {{");
        variants.iter().for_each(|variant| {
            let _ = writeln!(out, "    {variant},");
        });
        out.push_str("};\n");
    }
    out
}

pub(super) fn comment(out: &mut String, indent: &str, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(out, "{indent}//{line}");
    }
}

impl Struct {
    /// Renders it as C++.
    pub fn text(&self) -> String {
        let Self { doc, name, fields, bytes } = self;
        let mut out = "\n".to_owned();
        comment(&mut out, "", doc);
        let _ = writeln!(out, "struct {name} {{");
        for field in *fields {
            comment(&mut out, "    ", field.doc);
            let _ = writeln!(out, "    {};", field.declaration());
        }
        let _ = writeln!(out, "}};\nstatic_assert(sizeof({name}) == {bytes}, \"as the host has it\");");
        out
    }
}

impl Field {
    fn declaration(&self) -> String {
        let Self { name, rust, pointer, .. } = self;
        if let Some(pointer) = pointer.first() {
            return format!("{pointer} {name}");
        }
        let array = rust.strip_prefix('[').and_then(|rust| rust.strip_suffix(']'));
        let (element, extent) = match array.and_then(|array| array.split_once("; ")) {
            Some((element, extent)) => (element, format!("[{extent}]")),
            None => (*rust, String::new()),
        };
        let element = if element == "f32" { "float" } else { element };
        format!("{element} {name}{extent}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::device_structs! {
        /// Everything that a struct may have.
        struct Sample {
            /// An address.
            at: u64 as "const float*",
            kind: u16,
            units: u16,
            scale: f32,
            stops: [u32; 3],
        }
    }

    #[test]
    fn a_struct_is_declared_as_the_device_has_it() {
        let text = "\n// Everything that a struct may have.\nstruct Sample {\n    // An address.\n    const float* at;\n    \
                    u16 kind;\n    u16 units;\n    float scale;\n    u32 stops[3];\n};\n\
                    static_assert(sizeof(Sample) == 32, \"as the host has it\");\n";
        assert_eq!(STRUCTS[0].text(), text);
    }

    #[test]
    fn bytes_are_aligned_as_in_c() {
        let mut bytes = vec![7];
        Sample { at: 1, kind: 2, units: 3, scale: 1.0, stops: [4, 5, 6] }.put(&mut bytes);
        let words: Vec<u32> =
            bytes[8..].chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
        assert_eq!(bytes.len(), 8 + 28);
        assert_eq!(words[..], [1, 0, 2 | 3 << 16, 1.0f32.to_bits(), 4, 5, 6]);
    }
}
