//! The records of `Token`, `Pos` and `Tensor` for `#[megakernel]`: macros with the same names as
//! the types, like those that `#[derive(WeightLayout)]` makes for structs.

macro_rules! companion {
    ($dollar:tt $name:ident $hidden:ident $text:literal) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $hidden {
            (@amk1 $dollar key:tt { $dollar($dollar done:tt)* } { $dollar nkey:tt [$dollar($dollar np:tt)*] $dollar($dollar rest:tt)* } $dollar payload:tt) => {
                $dollar($dollar np)* ! {
                    @amk1 $dollar nkey { $dollar($dollar done)* { $dollar key input $text } } { $dollar($dollar rest)* } $dollar payload
                }
            };
            (@amk1 { $dollar($dollar found:tt)* }) => { $dollar($dollar found)* };
        }
        #[doc(hidden)]
        pub use $hidden as $name;
    };
}

companion!($ Token __amk_token "Token");
companion!($ Pos __amk_pos "Pos");
companion!($ Tensor __amk_tensor "Tensor");
