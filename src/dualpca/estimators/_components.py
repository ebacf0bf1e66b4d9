"""Names of `dualpca.gaussian` that some estimators still import from here."""

from dualpca.gaussian import at_least_one as at_least_one
from dualpca.gaussian import check_request as check_request
from dualpca.gaussian import is_count as is_count
from dualpca.gaussian import is_share as is_share
from dualpca.gaussian import share_count as share_count
