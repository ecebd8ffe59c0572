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
