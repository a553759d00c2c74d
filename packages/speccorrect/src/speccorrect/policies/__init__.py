"""The length policies, one file each; `speccorrect.policy` finds them by listing this folder."""
