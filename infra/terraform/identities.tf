# One service account a service, with the least it needs.

resource "google_service_account" "service" {
  for_each     = local.services
  account_id   = "${var.name}-${each.key}"
  display_name = "Lamina ${each.key}"
  depends_on   = [google_project_service.api]
}

resource "google_service_account" "invoker" {
  account_id   = "${var.name}-invoker"
  display_name = "Lamina: signs the pushes of Pub/Sub"
  depends_on   = [google_project_service.api]
}

resource "google_service_account" "migrate" {
  account_id   = "${var.name}-migrate"
  display_name = "Lamina: brings the database up to date"
  depends_on   = [google_project_service.api]
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = local.publishers
  topic    = google_pubsub_topic.topic[each.value.topic].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.service[each.value.service].member
}

resource "google_pubsub_topic_iam_member" "agent" {
  for_each = { for each in setproduct(local.agent_topics, var.agents) : join(" ", each) => each }
  topic    = google_pubsub_topic.topic[each.value[0]].id
  role     = "roles/pubsub.publisher"
  member   = each.value[1]
}

resource "google_cloud_run_v2_service_iam_member" "agent" {
  for_each = { for each in setproduct(keys(local.public), var.agents) : join(" ", each) => each }
  location = var.region
  name     = google_cloud_run_v2_service.service[each.value[0]].name
  role     = "roles/run.invoker"
  member   = each.value[1]
}

resource "google_cloud_run_v2_service_iam_member" "push" {
  for_each = toset([for each in concat(values(local.subscriptions), values(local.recordings)) : each.service])
  location = var.region
  name     = google_cloud_run_v2_service.service[each.value].name
  role     = "roles/run.invoker"
  member   = google_service_account.invoker.member
}

resource "google_project_iam_member" "valkey" {
  for_each = local.uses.valkey
  project  = var.project
  role     = "roles/memorystore.dbConnectionUser"
  member   = google_service_account.service[each.value].member
}

# databaseUser is what logging in with a token needs; client is for whoever puts a connector in between.
resource "google_project_iam_member" "database" {
  for_each = {
    for each in setproduct(local.uses.database, ["roles/alloydb.client", "roles/alloydb.databaseUser"]) :
    join(" ", each) => each
  }
  project = var.project
  role    = each.value[1]
  member  = google_service_account.service[each.value[0]].member
}

# Generating for the summarizer, the extractor and the compactor, embedding for the rest.
resource "google_project_iam_member" "model" {
  for_each = local.uses.model
  project  = var.project
  role     = "roles/aiplatform.user"
  member   = google_service_account.service[each.value].member
}

resource "google_secret_manager_secret_iam_member" "migrate" {
  secret_id = google_secret_manager_secret.database_owner.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.migrate.member
}
